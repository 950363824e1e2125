"""Grammars in the languages that engines take: Lark, GBNF, request fields of other servers."""
