package conformance

var securityCases []Case
