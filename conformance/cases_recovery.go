package conformance

var recoveryCases []Case
