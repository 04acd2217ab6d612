"""One module for each page; the parts that several pages share are in `console` itself."""
