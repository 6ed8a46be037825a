package conformance

var wireCases []Case
