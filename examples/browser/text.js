// Text to tokens and back, as SentencePiece does it: BPE or unigram. Special tokens have the ids 0 to 3.

const PAD = 0, UNKNOWN = 1, BEGIN = 2, END = 3, SPACE = "▁";

class Vocabulary {
  constructor({ kind, pieces }) {
    this.kind = kind;
    this.names = pieces.map(([name]) => name);
    this.scores = new Map();  // only of pieces that stand in text
    this.ids = new Map();
    pieces.forEach(([name, score], id) => {
      if (score !== null && id > END) { this.scores.set(name, score); this.ids.set(name, id); }
    });
    this.longest = Math.max(...this.names.map(name => [...name].length));
    this.lowest = Math.min(0, ...this.scores.values());
  }

  encode(text) {
    const letters = [...(SPACE + normalised(text)).replaceAll(" ", SPACE)];
    if (letters.length === 1) return [];
    const pieces = this.kind === "bpe" ? this.merged(letters) : this.likeliest(letters);
    const ids = pieces.flatMap(piece => this.ids.has(piece) ? [this.ids.get(piece)] : this.spelled(piece));
    return ids.filter((id, i) => id !== UNKNOWN || ids[i - 1] !== UNKNOWN);  // a run of unknown ones is one
  }

  // BPE: of all neighbours, those whose piece has the highest score are merged, until none has any.
  merged(letters) {
    const symbols = [...letters];
    for (;;) {
      let best = -1, highest = -Infinity;
      for (let i = 0; i + 1 < symbols.length; i++) {
        const score = this.scores.get(symbols[i] + symbols[i + 1]);
        if (score !== undefined && score > highest) { best = i; highest = score; }
      }
      if (best < 0) return symbols;
      symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
    }
  }

  // Unigram: the cut with the highest sum of scores (Viterbi).
  likeliest(letters) {
    const best = [{ score: 0, from: 0 }];
    for (let end = 1; end <= letters.length; end++) {
      best.push({ score: best[end - 1].score + this.lowest - 10, from: end - 1 });  // an unknown letter
      for (let from = Math.max(0, end - this.longest); from < end; from++) {
        const score = this.scores.get(letters.slice(from, end).join(""));
        if (score !== undefined && best[from].score + score > best[end].score) best[end] = { score: best[from].score + score, from };
      }
    }
    const pieces = [];
    for (let end = letters.length; end > 0; end = best[end].from) pieces.unshift(letters.slice(best[end].from, end).join(""));
    return pieces;
  }

  // A letter that is no piece: its bytes, where the vocabulary has them.
  spelled(letter) {
    const bytes = [...new TextEncoder().encode(letter)].map(byte => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
    return bytes.every(byte => this.ids.has(byte)) ? bytes.map(byte => this.ids.get(byte)) : [UNKNOWN];
  }

  decode(ids) {
    const bytes = ids.filter(id => id > END).flatMap(id => {
      const byte = /^<0x([0-9A-F]{2})>$/.exec(this.names[id]);
      return byte ? [parseInt(byte[1], 16)] : [...new TextEncoder().encode(this.names[id].replaceAll(SPACE, " "))];
    });
    return normalised(new TextDecoder().decode(new Uint8Array(bytes)));
  }
}

function normalised(text) {
  return text.replace(/[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u200b\ufeff]/g, "").normalize("NFC").trim().split(/\s+/).join(" ");
}
