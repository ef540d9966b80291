from redline_train import main

main()
