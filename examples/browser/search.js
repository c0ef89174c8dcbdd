// Beam search over the two graphs: the encoder once, the decoder a step at a time with its past. A beam of 1 is greedy.

class Translator {
  constructor(ort, encoder, decoder, data) {
    Object.assign(this, { ort, encoder, decoder, facts: data.facts });
    this.source = new Vocabulary(data.source);
    this.target = new Vocabulary(data.target);
  }

  static async load(data) {
    const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const glue = URL.createObjectURL(new Blob([bytes(data.glue)], { type: "text/javascript" }));
    const ort = await import(glue);
    ort.env.wasm.numThreads = 1;  // more need headers that only a server can send
    ort.env.wasm.wasmBinary = bytes(data.wasm).buffer;
    const [encoder, decoder] = await Promise.all(["encoder", "decoder"].map(name => ort.InferenceSession.create(bytes(data[name]))));
    return new Translator(ort, encoder, decoder, data);
  }

  async translate(text, beam = 1) {
    const ids = this.source.encode(text).slice(0, this.facts.positions - 1);
    if (!ids.length) return "";
    const most = Math.max(1, Math.min(ids.length + this.facts.extra + 1, this.facts.positions) - this.forcedEnd());
    return this.target.decode(await this.search(this.facts.source_end ? [...ids, END] : ids, beam, most));
  }

  async search(source, beam, most) {
    const seen = this.bools(1, source.length);
    const memory = await this.encoder.run({ tokens: this.whole([1, source.length], source), seen });
    let past = {};
    for (const [name, [heads, width]] of Object.entries(this.facts.past)) past[name] = this.floats([1, heads, 0, width], new Float32Array(0));
    let open = [{ tokens: [], total: 0 }];
    const done = [];
    for (let position = 0; position < most; position++) {
      const count = open.length, fed = { ...past, position: this.whole([1], [position]), seen: this.bools(count, source.length) };
      fed.tokens = this.whole([count, 1], open.map(one => one.tokens.at(-1) ?? BEGIN));
      for (const [name, tensor] of Object.entries(memory)) fed[name] = this.rows(tensor, Array(count).fill(0));
      const found = await this.decoder.run(fed);
      const best = this.best(found.logits, open, 2 * beam);
      const ends = best.slice(0, beam).filter(one => one.token === END);
      done.push(...ends.map(one => ({ tokens: open[one.parent].tokens, score: one.total / this.penalty(position + 1) })));
      const kept = best.filter(one => one.token !== END).slice(0, beam);
      const mayStop = position + 1 < most || this.forcedEnd();  // which would be one more step
      if (mayStop && this.isDone(done, beam, kept[0].total, this.stop() === "exact" ? most : position + 1)) break;
      open = kept.map(one => ({ tokens: [...open[one.parent].tokens, one.token], total: one.total }));
      past = {};
      for (const name of Object.keys(this.facts.past)) past[name] = this.rows(found[name.slice("past_".length)], kept.map(one => one.parent));
    }
    // at the limit what is open is taken as it is; by search.stop=exact only where nothing has ended
    if (open[0].tokens.length === most && !(done.length && this.stop() === "exact"))
      done.push(...open.map(one => ({ tokens: one.tokens, score: one.total / this.penalty(most + this.forcedEnd()) })));
    return done.reduce((a, b) => b.score > a.score ? b : a).tokens;
  }

  stop() { return this.facts.stop ?? "exact"; }

  forcedEnd() { return this.facts.forced_end ? 1 : 0; }

  // When as many have ended as are followed (search.stop=usual, and greedily); or so many, by `exact` one, that the best
  // open one, were it of this length at no further cost, would not be among them.
  isDone(done, beam, bestOpen, length) {
    if (beam === 1 || this.stop() === "usual") return done.length >= beam;
    const hope = bestOpen / this.penalty(length);
    return done.filter(one => one.score >= hope).length >= (this.stop() === "exact" ? 1 : beam);
  }

  // The likeliest continuations of all that are open; PAD, UNKNOWN and BEGIN are never written.
  best(logits, open, count) {
    const width = logits.dims[1], found = [];
    for (let parent = 0; parent < open.length; parent++) {
      const row = logits.data.subarray(parent * width, (parent + 1) * width);
      const most = row.reduce((a, b) => Math.max(a, b), -Infinity);
      const norm = most + Math.log(row.reduce((sum, value) => sum + Math.exp(value - most), 0));
      for (let token = END; token < width; token++) found.push({ parent, token, total: open[parent].total + row[token] - norm });
    }
    return found.sort((a, b) => b.total - a.total).slice(0, count);
  }

  penalty(length) {
    const { length_penalty: alpha, penalty } = this.facts;
    return penalty === "plain" ? length ** alpha : ((5 + length) / 6) ** alpha;
  }

  whole(dims, numbers) { return new this.ort.Tensor("int64", BigInt64Array.from(numbers.map(BigInt)), dims); }
  floats(dims, numbers) { return new this.ort.Tensor("float32", numbers, dims); }
  bools(rows, columns) { return new this.ort.Tensor("bool", new Uint8Array(rows * columns).fill(1), [rows, columns]); }

  // Some rows of a tensor, in this order.
  rows(tensor, chosen) {
    const size = tensor.dims.slice(1).reduce((a, b) => a * b, 1), data = new Float32Array(size * chosen.length);
    chosen.forEach((row, i) => data.set(tensor.data.subarray(row * size, (row + 1) * size), i * size));
    return this.floats([chosen.length, ...tensor.dims.slice(1)], data);
  }
}
