"""The bundled German-English corpus: a lexicon, a grammar, and the sentences they make."""
