"""A converted model: description, summary, notes, cost, memory, golden vectors."""
