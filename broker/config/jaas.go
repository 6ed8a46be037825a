package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// parsePlainUsers reads the users of a listener: user_<name>="password". The
// broker's own username and password, which such a login also has in Kafka for
// connections among brokers, mean nothing here.
func parsePlainUsers(text string) (map[string]properties.Secret, error) {
	values, err := properties.ParseLogin(text, properties.PlainModule, "PLAIN")
	if err != nil {
		return nil, err
	}
	users := make(map[string]properties.Secret)
	for name, password := range values {
		user, isUser := strings.CutPrefix(name, "user_")
		switch {
		case isUser && (user == "" || password == ""):
			return nil, errors.New(`has a user without name or password; write user_<name>="password"`)
		case isUser:
			users[user] = properties.Secret(password)
		case name != "username" && name != "password":
			return nil, errors.New(`has an option that is not user_<name>="password"`)
		}
	}
	if len(users) == 0 {
		return nil, errors.New(`names no user; write user_<name>="password"`)
	}
	return users, nil
}

// scramEntry is one user in the form of kafka-storage's --add-scram.
var scramEntry = regexp.MustCompile(`^(SCRAM-SHA-256|SCRAM-SHA-512)=\[name=([^,\]]+),password=(.+)\]$`)

// ScramUser is a credential to begin with.
type ScramUser struct {
	Mechanism, Name string
	Password        properties.Secret
}

func parseScramUsers(text string) (users []ScramUser, err error) {
	for i, entry := range strings.Split(text, ";") {
		m := scramEntry.FindStringSubmatch(strings.TrimSpace(entry))
		if m == nil {
			return nil, fmt.Errorf("entry %d is not of the form SCRAM-SHA-256=[name=alice,password=...], with semicolons between entries", i+1)
		}
		users = append(users, ScramUser{Mechanism: m[1], Name: m[2], Password: properties.Secret(m[3])})
	}
	return users, nil
}
