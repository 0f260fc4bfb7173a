"""The API surfaces: wire types end here on the way in and begin here on the way out."""
