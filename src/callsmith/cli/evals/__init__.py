"""Commands that measure: `check` a server's tool calling, `eval` models, `tune` how tools are put to them."""

import typer

from callsmith.cli.evals import check, eval, tune

app = typer.Typer()
for module in (check, eval, tune):
    app.add_typer(module.app)
