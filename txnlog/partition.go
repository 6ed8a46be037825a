package txnlog

import (
	"math"
	"unicode/utf16"
)

// PartitionFor is the partition that holds a global transactional id: the rule
// of Kafka's TransactionStateManager.partitionFor, Utils.abs(id.hashCode) %
// partitions. Java hashes UTF-16 code units, and Utils.abs is the absolute
// value with 0 for the smallest integer, which has none. It is not
// Utils.toPositive, which clears the sign bit and gives another partition for
// every negative hash.
func PartitionFor(id string, partitions int32) int32 {
	hash := javaHash(id)
	switch {
	case hash == math.MinInt32:
		hash = 0
	case hash < 0:
		hash = -hash
	}
	return hash % partitions
}

func javaHash(s string) int32 {
	var hash int32
	for _, r := range s {
		if hi, lo := utf16.EncodeRune(r); hi != '\uFFFD' {
			hash = hash*31 + hi
			hash = hash*31 + lo
			continue
		}
		hash = hash*31 + r
	}
	return hash
}
