"""One module for each page; what several of them show stands in `console` itself."""
