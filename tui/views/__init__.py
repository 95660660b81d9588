"""What each screen shows, as plain values: pure functions of a frame, made in the feed's thread."""
