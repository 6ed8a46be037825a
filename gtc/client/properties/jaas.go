package properties

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The login modules of Kafka.
const (
	PlainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	ScramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
)

var (
	// jaasOption is one name="value" of a login; a quote in a value is escaped.
	jaasOption = regexp.MustCompile(`\s+([A-Za-z0-9_.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))`)
	jaasEscape = regexp.MustCompile(`(?s)\\(.)`)
)

// ParseLogin reads the options of <module> required name="value" ...;, the form
// of sasl.jaas.config. Errors do not repeat the text, which holds passwords.
func ParseLogin(text, module, mechanism string) (map[string]string, error) {
	body, ended := strings.CutSuffix(strings.TrimSpace(text), ";")
	if !ended {
		return nil, errors.New("must end in a semicolon")
	}
	rest, ok := strings.CutPrefix(body, module)
	if !ok {
		return nil, fmt.Errorf("must begin with %s, the login module of %s", module, mechanism)
	}
	trimmed := strings.TrimLeft(rest, " \t\r\n")
	options, ok := strings.CutPrefix(trimmed, "required")
	if !ok || trimmed == rest {
		return nil, errors.New(`must have the word "required" after the login module`)
	}
	values := make(map[string]string)
	left := jaasOption.ReplaceAllStringFunc(options, func(option string) string {
		m := jaasOption.FindStringSubmatch(option)
		values[m[1]] = jaasEscape.ReplaceAllString(m[2], "$1") + m[3]
		return ""
	})
	if strings.TrimSpace(left) != "" {
		return nil, errors.New(`has text that is not name="value"`)
	}
	return values, nil
}

// parseClientLogin reads the login of a client.
func parseClientLogin(text, mechanism string) (username string, password Secret, err error) {
	module := ScramModule
	if mechanism == "PLAIN" {
		module = PlainModule
	}
	values, err := ParseLogin(text, module, mechanism)
	if err != nil {
		return "", "", err
	}
	if values["username"] == "" || values["password"] == "" {
		return "", "", errors.New("must give username and password")
	}
	return values["username"], Secret(values["password"]), nil
}
