from rsag.cli import main

main()
