"""Nodes that a conversion adds before and after the network: preprocessing and suppression."""
