"""Public fakes and makers of hard input, for our tests and for those of others who build on Shoal."""
