"""What a config asks for: its keys, its files in the store, and the work that fills them."""
