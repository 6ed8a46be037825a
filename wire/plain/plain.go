// Package plain makes what others have chosen fit for the eyes of a person: ids,
// names, and messages that repeat them. To a terminal an escape sequence is an
// order, a newline begins a line that looks like the program's own, and a bidi
// control shows one name as another.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxName is how much is shown of an id or a name, in runes. An id may have
	// 32767 bytes.
	maxName = 100
	// maxText is how much is shown of a message, in runes.
	maxText = 2000
)

// Name is an id or a name among other words or columns. One that could be taken
// for something else is in quotes, and so is one that is cut.
func Name(s string) string {
	if s != "" && cut(s, maxName) == s && strings.IndexFunc(s, special) < 0 && utf8.ValidString(s) {
		return s
	}
	return Quote(s)
}

// Names is several of them.
func Names(all []string) string {
	shown := make([]string, len(all))
	for i, s := range all {
		shown[i] = Name(s)
	}
	return strings.Join(shown, ", ")
}

// Quote is a Name that is in quotes always.
func Quote(s string) string {
	if c := cut(s, maxName); len(c) < len(s) {
		return fmt.Sprintf("%q... (%d bytes)", c, len(s))
	}
	return strconv.Quote(s)
}

// special runes are not shown as they are in a name, or would end it.
func special(r rune) bool {
	return !strconv.IsPrint(r) || r == ' ' || r == ',' || r == '"' || r == '\\'
}

// Text is a message, on one line.
func Text(s string) string {
	if c := cut(s, maxText); len(c) < len(s) {
		return Text(c) + "..."
	}
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if hidden(r) || r == utf8.RuneError && n == 1 {
			quoted := strconv.Quote(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func hidden(r rune) bool { return !strconv.IsPrint(r) }

// cut is the first runes of s.
func cut(s string, runes int) string {
	if len(s) <= runes {
		return s
	}
	for i := range s {
		if runes--; runes < 0 {
			return s[:i]
		}
	}
	return s
}

// JSON is a JSON text of the same value in which nothing is hidden. Encoders
// escape what JSON demands: not DEL, nor the C1 and bidi controls.
func JSON(text []byte) []byte {
	safe := func(r rune) bool { return r == '\n' || strconv.IsPrint(r) }
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case safe(r) && (r != utf8.RuneError || n > 1):
			out = append(out, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}
