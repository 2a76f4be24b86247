"""Results as one page that needs nothing else, and as CSV: made from the JSON documents alone."""
