"""The installation of a shared machine: its configuration in /etc, its units, its accounts and folders."""
