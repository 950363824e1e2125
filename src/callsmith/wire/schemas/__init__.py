"""The schemas of requests and answers, and the operations they belong to, a module a dialect: what `/openapi.json` is made of."""
