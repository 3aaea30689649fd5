"""What is in deploy/: that it fits the daemon, and that the programs that read it accept it."""
