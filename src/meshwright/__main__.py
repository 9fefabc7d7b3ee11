"""`python -m meshwright` is the `meshwright` command."""

from .cli import main

main()
