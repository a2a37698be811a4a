"""What the programs in scripts/ share: servers to measure, figures of them, and the network they are measured in."""
