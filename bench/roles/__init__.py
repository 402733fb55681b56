"""What the processes of a case do. A module is a peer; its functions are run by `bench.role`, each in its process."""
