"""`python -m callsmith`."""

from callsmith.cli.main import app

if __name__ == "__main__":
    app(prog_name="callsmith")
