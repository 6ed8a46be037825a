package config

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

// maxFileBytes bounds a file that is a configuration only by mistake.
const maxFileBytes = 1 << 20

// overrideSource names the command line in errors and in the effective
// configuration.
const overrideSource = "--override"

// assignment is one key=value as it was written.
type assignment struct {
	key, value string
	source     string
	line       int
}

func (a assignment) errorf(format string, args ...any) *Error {
	return &Error{Source: a.source, Line: a.line, Key: a.key, Problem: fmt.Sprintf(format, args...)}
}

// parseProperties reads a file of Java properties. The library that knows the
// escapes does not tell line numbers, so it is given one logical line at a
// time; ${...} is left alone, because Kafka does not expand it either and a
// password may contain it.
func parseProperties(source string, r io.Reader) ([]assignment, []*Error) {
	fail := func(line int, format string, args ...any) *Error {
		return &Error{Source: source, Line: line, Problem: fmt.Sprintf(format, args...)}
	}
	lines := bufio.NewScanner(io.LimitReader(r, maxFileBytes+1))
	lines.Buffer(nil, maxFileBytes+1)
	var (
		out     []assignment
		errs    []*Error
		logical strings.Builder
		start   int
		size    int
	)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if size += len(text) + 1; size > maxFileBytes {
			return nil, []*Error{fail(n, "the file is larger than %d bytes, which no configuration is", maxFileBytes)}
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return nil, []*Error{fail(n, "not text in UTF-8; is this a properties file?")}
		}
		if logical.Len() == 0 {
			start = n
			if trimmed := strings.TrimLeft(text, " \t\f"); trimmed == "" || trimmed[0] == '#' || trimmed[0] == '!' {
				continue
			}
		}
		logical.WriteString(text + "\n")
		if continues(text) {
			continue
		}
		a, err := parseLine(logical.String())
		logical.Reset()
		if err != nil {
			errs = append(errs, fail(start, "%v", err))
			continue
		}
		a.source, a.line = source, start
		out = append(out, a)
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fail(0, "reading: %v", err))
	}
	if logical.Len() > 0 {
		errs = append(errs, fail(start, "the line ends in a backslash and nothing follows it"))
	}
	return out, errs
}

// continues says that an odd number of backslashes ends the line: an even
// number is that many escaped backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

func parseLine(logical string) (assignment, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(logical))
	// The library's own error repeats the text, which may hold a password.
	if err != nil || p.Len() != 1 {
		return assignment{}, errors.New(`not a property: write key=value, and \\ for a backslash`)
	}
	keys := p.Keys()
	value, _ := p.Get(keys[0])
	return assignment{key: keys[0], value: strings.TrimSpace(value)}, nil
}

func parseOverrides(overrides []string) (out []assignment, errs []*Error) {
	for _, o := range overrides {
		key, value, found := strings.Cut(o, "=")
		key = strings.TrimSpace(key)
		if !found || key == "" {
			// The text is not repeated: it may be a password without its key.
			errs = append(errs, &Error{Source: overrideSource, Problem: "not of the form key=value"})
			continue
		}
		out = append(out, assignment{key: key, value: strings.TrimSpace(value), source: overrideSource})
	}
	return out, errs
}
