"""Parts of the documentation besides its pages: generated pages, and the hook of MkDocs."""
