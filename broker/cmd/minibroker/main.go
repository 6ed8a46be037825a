// Command minibroker is a node: a small durable Kafka broker, a Global
// Transaction Coordinator, or both in one process (process.roles).
//
//	minibroker [server.properties] --override key=value ...
//
// It logs to standard error, readable on a terminal and as JSON otherwise, and
// ends cleanly on SIGTERM and SIGINT; a second signal ends it at once.
package main

import (
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/cmd/program"
)

func main() {
	broker.PrivateFiles()
	program.Main(command)
}

// flags are what the command line says besides the configuration.
type flags struct {
	overrides   []string
	logLevel    string
	readyFile   string
	helpConfig  bool
	printConfig bool
	crashAt     string
	stopAt      string
}

func command(log zerolog.Logger) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:           "minibroker [properties file]",
		Short:         "A small durable Kafka broker and Global Transaction Coordinator",
		Args:          cobra.MaximumNArgs(1),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.helpConfig {
				return config.PrintHelp(cmd.OutOrStdout())
			}
			cfg, err := load(args, f)
			if err != nil {
				return err
			}
			if f.printConfig {
				return cfg.Print(cmd.OutOrStdout())
			}
			level, err := zerolog.ParseLevel(cfg.LogLevel)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, f, log.Level(level))
		},
	}
	cmd.Flags().StringArrayVar(&f.overrides, "override", nil, "set key=value over the file; may be repeated")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "", "trace, debug, info, warn or error; over log.level")
	cmd.Flags().StringVar(&f.readyFile, "ready-file", "", "write host:port into this file once clients are served")
	cmd.Flags().BoolVar(&f.helpConfig, "help-config", false, "describe every configuration key and end")
	cmd.Flags().BoolVar(&f.printConfig, "print-config", false, "print the effective configuration, secrets hidden, and end")
	cmd.Flags().StringVar(&f.crashAt, "crash-at", "", "for tests: end by SIGKILL at this point of the coordinator, point[:n] for the n-th time")
	cmd.Flags().StringVar(&f.stopAt, "stop-at", "", "for tests: stop by SIGSTOP at this point, until SIGCONT")
	return cmd
}

func load(args []string, f flags) (*config.Config, error) {
	path := ""
	if len(args) == 1 {
		path = args[0]
	}
	overrides := f.overrides
	if f.logLevel != "" {
		overrides = append(overrides, "log.level="+f.logLevel)
	}
	return config.Load(path, overrides)
}
