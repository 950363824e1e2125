"""The routes: one module a dialect."""
