"""How offers come about, a family of models each."""
