"""Session files of other agents, each read into conversations, and these into eval cases."""
