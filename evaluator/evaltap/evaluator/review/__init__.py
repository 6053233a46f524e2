"""What people think of landed turns: a queue, decisions that are only ever added, and their agreement."""
