"""Pure rules: states, options, numbers, order, times and their checks. No Spark, no Arrow."""
