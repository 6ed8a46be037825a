package conformance

var discoveryCases []Case
