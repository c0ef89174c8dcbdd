"""The whole road in thirty lines: text, a Transformer, training as the paper has it, greedy search, BLEU.

python examples/learn.py [UPDATES]
"""

import random
import sys

import torch

from transduce.bundled.corpus import bundled
from transduce.core import transformer
from transduce.core.hypotheses import Request
from transduce.core.layout import lesson
from transduce.core.learn import learn
from transduce.core.search import Roles, search
from transduce.evaluate import bleu
from transduce.settings.sections import ModelSettings, TextSettings
from transduce.text.tokenizers import Tokenizers

corpus = bundled(train=10_000)
tokenizers = Tokenizers.train([(pair.source, pair.target) for pair in corpus.train], TextSettings(vocabulary=1000))
sources = tokenizers.source.encode([pair.source for pair in corpus.train])
targets = tokenizers.target.encode([pair.target for pair in corpus.train])
pairs = list(zip(sources, targets, strict=True))

torch.manual_seed(1)
random.seed(1)
m = ModelSettings(layers=2, d_model=128, d_ff=512, heads=4)
model = transformer.build(m, tokenizers.source.size, tokenizers.target.size)
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
updates = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
lessons = (lesson(random.sample(pairs, 64)) for _ in range(updates))
for step, loss in learn(model, lessons, optimizer, m.d_model, warmup=400):
    if step % 100 == 0:
        print(f"update {step}: loss {loss:.2f}", flush=True)

model.eval()
sources = tokenizers.source.encode([pair.source for pair in corpus.test])
found = search(model, [Request(ids, most=len(ids) + 50) for ids in sources], Roles(), "cpu")
written = tokenizers.target.decode_all([best.tokens for best, *_ in found])
print(corpus.test[0].source, "→", written[0])
print(f"BLEU {bleu(written, [pair.target for pair in corpus.test], '13a'):.1f} on {len(written)} new sentences")
