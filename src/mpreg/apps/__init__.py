"""Systems built on the platform, each a package that could be a project of its own."""
