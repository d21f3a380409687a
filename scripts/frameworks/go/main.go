// Command go is an application on Gin, for scripts/frameworks.sh.
package main

import (
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gin-gonic/gin"
)

func main() {
	idle, err := time.ParseDuration(os.Getenv("IDLE") + "s")
	if err != nil {
		log.Fatal(err)
	}
	name := os.Getenv("NAME")
	app := gin.New()
	app.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "%s\n", name) })
	app.POST("/orders", func(c *gin.Context) {
		var order map[string]any
		if err := c.BindJSON(&order); err != nil {
			return
		}
		c.JSON(http.StatusOK, gin.H{"name": name, "order": order})
	})
	server := &http.Server{Addr: net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")), Handler: app, IdleTimeout: idle}
	log.Fatal(server.ListenAndServe())
}
