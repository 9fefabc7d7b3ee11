"""What the documentation is made of besides its pages: generated pages, and the hook of MkDocs."""
