// Command kafka-global-mirror mirrors topics between Kafka clusters exactly
// once, with MirrorMaker's property conventions.
//
//	kafka-global-mirror mirror.properties [--override key=value]...
//
// It logs to standard error, readable on a terminal and as JSON otherwise, ends
// cleanly on SIGTERM and SIGINT, and with exit code 1 on what a person has to
// look at. Any number of them share the work, each with its own instance.id.
package main

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/cmd/program"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror/config"
)

func main() { program.Main(command) }

func command(log zerolog.Logger) *cobra.Command {
	var overrides []string
	var helpConfig, check bool
	cmd := &cobra.Command{
		Use:           "kafka-global-mirror properties-file",
		Short:         "Mirror topics between Kafka clusters exactly once",
		Args:          cobra.MaximumNArgs(1),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if helpConfig {
				return config.PrintHelp(cmd.OutOrStdout())
			}
			if len(args) != 1 {
				return errors.New("name the properties file; --help-config lists the keys")
			}
			cfg, err := config.Load(args[0], overrides)
			if err != nil || check {
				return err
			}
			level, err := zerolog.ParseLevel(cfg.LogLevel)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, log.Level(level))
		},
	}
	cmd.Flags().StringArrayVar(&overrides, "override", nil, "set key=value over the file; may be repeated")
	cmd.Flags().BoolVar(&helpConfig, "help-config", false, "describe every configuration key and end")
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and end")
	return cmd
}

func run(ctx context.Context, cfg *config.Config, log zerolog.Logger) (err error) {
	registry := prometheus.NewRegistry()
	o := cfg.Mirror
	o.Clock, o.Logger, o.Registerer = mirror.SystemClock(), log, registry
	m, err := mirror.New(o)
	if err != nil {
		return err
	}
	if cfg.Metrics != "" {
		stop, metricsErr := program.ServeMetrics(ctx, cfg.Metrics, registry, log)
		if metricsErr != nil {
			return metricsErr
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	return m.Run(ctx)
}
