//go:build kafka

package main

import "testing"

func TestExamplesOnKafka(t *testing.T) {
	short(t, options{kafka: true, records: 600, instances: 3, kills: 2, seed: 1})
}
