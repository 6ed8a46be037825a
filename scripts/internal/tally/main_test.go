package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each case is what go test -json prints, cut down to what is counted.
func TestTally(t *testing.T) {
	tests := []struct {
		name   string
		in     []string
		want   counts
		prints string
	}{
		{
			name: "subtests count beside their parent",
			in: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"run","Package":"p","Test":"TestA/one"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/one"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: counts{passed: 2}, prints: "p",
		},
		{
			name: "a failure is counted and its output shown",
			in: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: want 1, got 2\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"run","Package":"p","Test":"TestB"}`,
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: counts{passed: 1, failed: 1}, prints: "a_test.go:7: want 1, got 2",
		},
		{
			name: "a skipped test is a failed one, and is named",
			in: []string{
				`{"Action":"run","Package":"p","Test":"TestLazy"}`,
				`{"Action":"skip","Package":"p","Test":"TestLazy"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: counts{failed: 1}, prints: "TestLazy",
		},
		{
			name: "a package that does not build is a failure without a test",
			in: []string{
				`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p/a.go:3: undefined: b\n"}`,
				`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
				`{"Action":"start","Package":"p"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			},
			want: counts{failed: 1}, prints: "undefined: b",
		},
		{
			name: "a test that never ended, because the process died, is a failure",
			in: []string{
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: counts{failed: 1}, prints: "boom",
		},
		{
			name: "a package without tests is nothing",
			in:   []string{`{"Action":"skip","Package":"p"}`},
		},
		{
			name:   "lines that are no event are shown",
			in:     []string{`go: warning: something`},
			prints: "go: warning: something",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			got, err := tally(strings.NewReader(strings.Join(test.in, "\n")+"\n"), &out)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("counts = %+v, want %+v", got, test.want)
			}
			if !strings.Contains(out.String(), test.prints) {
				t.Errorf("printed %q, want %q in it", out.String(), test.prints)
			}
		})
	}
}

func TestCountsAreAppended(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counts")
	for _, action := range []string{"pass", "fail"} {
		in := `{"Action":"run","Package":"p","Test":"TestA"}` + "\n" +
			`{"Action":"` + action + `","Package":"p","Test":"TestA"}` + "\n" +
			`{"Action":"` + action + `","Package":"p"}` + "\n"
		if err := run(strings.NewReader(in), new(strings.Builder), file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := "1 0\n0 1\n"; string(got) != want {
		t.Fatalf("counts file holds %q, want %q", got, want)
	}
}
