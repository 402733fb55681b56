"""Values by key: keys and entries, the store's level and what a node holds of it, exact operations, structures."""
