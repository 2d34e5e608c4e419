"""Which arm do we play? One file a chooser."""
