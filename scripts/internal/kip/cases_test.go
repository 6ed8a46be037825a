package kip

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCasesAreTestedWhereThePageSays: what gtc/CASES.md names is there.
func TestCasesAreTestedWhereThePageSays(t *testing.T) {
	there := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	walk(t, func(path, text string) {
		there[filepath.Base(path)] = true
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range test.FindAllStringSubmatch(text, -1) {
				there[m[1]] = true
			}
		}
	})
	named := regexp.MustCompile("`(Test\\w*|[\\w/]+\\.(?:txt|go))`").FindAllStringSubmatch(string(read(t, "gtc/CASES.md")), -1)
	if len(named) < 100 {
		t.Errorf("%d tests and files are found on the page: it is not read right", len(named))
	}
	for _, m := range named {
		if !there[filepath.Base(m[1])] {
			t.Errorf("%s is not there", m[1])
		}
	}
}
