//go:build kafka

package readback

import (
	"strconv"
	"testing"
	"time"
)

// kgoUnique names a topic of one run: clusters outlive the tests.
func kgoUnique(t *testing.T) string {
	t.Helper()
	return strconv.FormatInt(time.Now().UnixNano(), 36)
}
