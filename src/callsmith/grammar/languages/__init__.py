"""The languages that users write grammars in: GBNF, Lark, regular expressions; and which texts such a grammar has."""
